"""What the check's image starts: an echo at port 8080, and the hooks at 9000, which the echo shows."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

seen = []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def body(self):
        return self.rfile.read(int(self.headers.get("content-length") or 0)).decode()

    def reply(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments):
        pass


class Hooks(Handler):
    def do_POST(self):
        seen.append([self.path, self.body()])
        self.reply({})


class Echo(Handler):
    def do_POST(self):
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.reply({"path": self.path, "headers": headers, "body": self.body(), "hooks": seen})

    do_GET = do_POST


threading.Thread(target=ThreadingHTTPServer(("0.0.0.0", 8080), Echo).serve_forever, daemon=True).start()
ThreadingHTTPServer(("0.0.0.0", 9000), Hooks).serve_forever()
