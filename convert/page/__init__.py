"""Pages: folders of static files that run one model in a browser."""

from pathlib import Path

ASSETS = Path(__file__).with_name("assets")
"""Files that pages have copies of; the server's page has the same style."""
MANIFEST = "page.json"
"""The file of a page that says what it runs."""
