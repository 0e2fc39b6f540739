"""File checks: format rules, security scan and system report."""
