"""Take attributes out of the spans of a capture: a vendor's prompts and tool manuals are not ours to ship.

    strip_attributes.py CAPTURE_FOLDER KEY [KEY ...]

Everything else of a body stays; meta.json says under `stripped` what is gone. The key
`gen_ai.input.messages:system` takes only the system's messages out of `gen_ai.input.messages`.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

SYSTEM = "gen_ai.input.messages:system"


def without_system(text: str) -> str:
    """Return a JSON list of messages without those of the system."""
    return json.dumps([message for message in json.loads(text) if message.get("role") != "system"])


def strip(request: dict[str, Any], keys: frozenset[str]) -> None:
    """Take the named attributes out of every span of an export request in its JSON form, in place."""
    scopes = [scope for resource in request["resourceSpans"] for scope in resource["scopeSpans"]]
    for span in (span for scope in scopes for span in scope["spans"]):
        holders = [span, *span.get("events", [])]
        for holder in holders:
            holder["attributes"] = [a for a in holder.get("attributes", []) if a["key"] not in keys]
            for attribute in holder["attributes"]:
                if attribute["key"] == "gen_ai.input.messages" and SYSTEM in keys:
                    attribute["value"]["stringValue"] = without_system(attribute["value"]["stringValue"])


def rewrite(path: Path, keys: frozenset[str]) -> None:
    """Strip one traces body, whichever its encoding."""
    body = gzip.decompress(path.read_bytes())
    if ".json" in path.name:
        request = json.loads(body)
        strip(request, keys)
        body = json.dumps(request, separators=(",", ":")).encode()
    else:
        request = json_format.MessageToDict(ExportTraceServiceRequest.FromString(body))
        strip(request, keys)
        body = json_format.ParseDict(request, ExportTraceServiceRequest()).SerializeToString()
    path.write_bytes(gzip.compress(body, 9, mtime=0))


def main() -> None:
    """Strip a capture and note it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("keys", nargs="+")
    options = parser.parse_args()
    for path in sorted(options.folder.glob("*-traces.*.gz")):
        rewrite(path, frozenset(options.keys))
    meta = options.folder / "meta.json"
    told = json.loads(meta.read_text()) | {"stripped": options.keys}
    meta.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
