"""One file per destination."""
