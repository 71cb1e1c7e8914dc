"""Adds two integers over HTTP; writes its port to /workspace/port once it listens."""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


class Sum(BaseHTTPRequestHandler):
    def do_GET(self):
        url = urlsplit(self.path)
        if url.path != "/sum":
            return self.send_error(404)
        query = parse_qs(url.query)
        try:
            total = int(query["a"][0]) + int(query["b"][0])
        except (KeyError, ValueError):
            return self.send_error(400)
        body = json.dumps({"sum": total}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = ThreadingHTTPServer(("127.0.0.1", 0), Sum)
with open("/workspace/port.new", "w") as port:
    port.write(f"{server.server_port}\n")
os.replace("/workspace/port.new", "/workspace/port")
server.serve_forever()
