"""Codex CLI in one-shot mode, with logs and traces.

npm: @openai/codex (the folder is given as --modules). usage: codex_cli.py
Its own tools run for real, so the ground truth is written from the script and from what such commands do.
"""

import json
import os
import subprocess
import tempfile
from pathlib import Path

import scenario

home = Path(tempfile.mkdtemp(prefix="agent-home-"))
work = home / "project"
work.mkdir()
CALLS = [
    ("exec_command", {"cmd": "echo 21C"}, False),
    *[("exec_command", {"cmd": "cat missing_file.txt"}, True)] * 2,
    *[("exec_command", {"cmd": f"ls missing_folder_{n}"}, True) for n in range(2)],
]
turns = [{"calls": [[name, arguments]]} for name, arguments, _ in CALLS]
scenario.use([*turns, {"text": "Nothing was found."}])
for name, arguments, failed in CALLS:
    scenario.note_call(name, arguments, failed=failed)
receiver = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]
(home / ".codex").mkdir()
(home / ".codex" / "config.toml").write_text(f"""
model = "stub-model"
model_provider = "stub"
check_for_update_on_startup = false
[model_providers.stub]
name = "stub"
base_url = "{scenario.BASE_URL}"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
[analytics]
enabled = false
[otel]
environment = "test"
log_user_prompt = true
exporter = {{ otlp-http = {{ endpoint = "{receiver}/v1/logs", protocol = "binary" }} }}
trace_exporter = {{ otlp-http = {{ endpoint = "{receiver}/v1/traces", protocol = "binary" }} }}
""")
command = [
    "node",
    str(Path("node_modules/@openai/codex/bin/codex.js").resolve()),
    "exec",
    "--skip-git-repo-check",
    "--dangerously-bypass-approvals-and-sandbox",
    "Look around in this folder.",
]
settings = {"HOME": str(home), "CODEX_HOME": str(home / ".codex")}
subprocess.run(
    command, cwd=work, env=os.environ | settings, stdin=subprocess.DEVNULL, timeout=100, check=False
)
manifest = json.loads(Path("node_modules/@openai/codex/package.json").read_text())
notes = {
    "versions": {"@openai/codex": manifest["version"]},
    "scenario": "one command works, others exit with 1 or 2",
    "instrumentation": "native, logs and traces",
}
Path(os.environ["CAPTURE_NOTES"]).write_text(json.dumps(notes))
