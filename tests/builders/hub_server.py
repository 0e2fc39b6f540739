"""A stub of the Hugging Face hub: serves repositories of files from memory, as huggingface_hub asks for them."""

import contextlib
import hashlib
import http.server
import json
import threading
from urllib.parse import unquote

COMMIT = "3" * 40


@contextlib.contextmanager
def hub_server(repositories):
    """The address of a hub with files by name by repository, and the list of the files that were downloaded."""
    fetched = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments):
            pass

        def answer(self, content, head, status=200, **headers):
            self.send_response(status)
            for name, value in {"Content-Length": len(content), "X-Repo-Commit": COMMIT, **headers}.items():
                self.send_header(name.replace("_", "-"), str(value))
            self.end_headers()
            if not head:
                self.wfile.write(content)

        def respond(self, head):
            path, _, query = unquote(self.path).partition("?")
            path = path.strip("/")
            if path.startswith("api/models/"):
                owner, name, *rest = path.split("/")[2:]
                files = repositories.get(f"{owner}/{name}")
                if files is not None:
                    folder = "".join(f"{part}/" for part in rest[2:]) if rest[:1] == ["tree"] else ""
                    whole = rest[:1] != ["tree"] or "recursive=true" in query.lower()
                    listed = [
                        {"type": "file", "path": file, "rfilename": file, "size": len(files[file] or b""), "oid": "0"}
                        for file in files
                        if file.startswith(folder) and (whole or "/" not in file[len(folder) :])
                    ]
                    repo = {"id": f"{owner}/{name}", "sha": COMMIT, "siblings": listed}
                    content = json.dumps(listed if rest[:1] == ["tree"] else repo).encode()
                    return self.answer(content, head, Content_Type="application/json")
            elif "/resolve/" in path:
                repo, _, rest = path.partition("/resolve/")
                content = repositories.get(repo, {}).get(rest.partition("/")[2])
                if content is not None:
                    if not head:
                        fetched.append(rest.partition("/")[2])
                    return self.answer(content, head, ETag=f'"{hashlib.sha256(content).hexdigest()}"')
            return self.answer(b"", head, 404, X_Error_Code="EntryNotFound")

        def do_GET(self):
            self.respond(False)

        def do_HEAD(self):
            self.respond(True)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", fetched
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
