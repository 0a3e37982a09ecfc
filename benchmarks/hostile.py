"""What commands and the service make of hostile files and requests, and what it costs them.

    python benchmarks/hostile.py --output docs/results/hostile

Every file of :mod:`kdnas.testing.hostile_files` is given to the command that reads such files, in a
process of its own, and every request of :mod:`kdnas.testing.hostile_specs` to a service that runs
and, where a command takes its kind from a file, to that command. A case holds if it ends by itself
within half a minute, in a sentence and not in a traceback, takes no gigabyte more than the same
command on a sound file, and runs no code that it brings.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psutil
from study_files import publish

from kdnas.testing.chaos import requests
from kdnas.testing.commands import WORDS, Program
from kdnas.testing.hostile_files import CANARY, FILES, command, lay
from kdnas.testing.hostile_specs import SPECS
from kdnas.testing.tiny_tasks import WORDS as TASK_WORDS
from kdnas.testing.tiny_tasks import write_sst2
from kdnas.testing.tiny_teacher import make_tiny_teacher

MOST_SECONDS = 30.0
MOST_MIB_MORE = 1024.0
PATIENCE_SECONDS = 90.0
"""After so long a process is killed."""
SOUND = "a sound one"


@dataclass(frozen=True)
class Outcome:
    """What became of one case.

    Attributes:
        family: of the file, or kind of the request.
        name: of the case.
        by: ``command`` or ``service``.
        code: exit code, or status of the answer; -9 where it was killed after a minute and a half.
        seconds: until it ended.
        mib: peak of the memory of the process or, of the service, what it has afterwards.
        said: the last line of what it said.
        broken: whether there was a traceback, an answer of 500, or code of the file was run.
    """

    family: str
    name: str
    by: str
    code: int
    seconds: float
    mib: float
    said: str
    broken: bool

    def amiss(self, sound_mib: float) -> str:
        """Why it does not hold; empty if it does."""
        reasons = {
            "broken": self.broken,
            f"took {self.seconds:.0f} s": self.seconds > MOST_SECONDS,
            f"took {self.mib - sound_mib:.0f} MiB more": self.mib - sound_mib > MOST_MIB_MORE,
        }
        return ", ".join(reason for reason, is_so in reasons.items() if is_so)


def main() -> None:
    """Try every case, or those whose name holds a text, and make the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="", help="regular expression: family/name")
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="kdnas-hostile-") as made:
        ground = Ground(Path(made))
        for one in ground.outcomes(re.compile(asked.only)):
            outcomes.append(one)
            print(f"{one.code:4} {one.seconds:6.1f} s {one.mib:6.0f} MiB  ", end="")
            print(f"{one.family}/{one.name} ({one.by}): {one.said}", flush=True)
    publish(page(outcomes), {"outcomes": [asdict(one) for one in outcomes]}, asked.output)


class Ground:
    """A folder with a sound file of every family, and a service.

    Args:
        folder: empty.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = Program.make(folder)
        make_tiny_teacher(folder / "teacher", words=(*WORDS, *TASK_WORDS))
        write_sst2(folder / "glue")
        self.requests = {work.kind: work for work in requests(folder) if not work.on_ray}
        for words in (
            *(("evaluate teacher --suite glue --data-dir glue --max-steps 3 --seeds 1"),),
            *(("export teacher --format onnx --no-latency --output graphs"),),
        ):
            more = ("--save-models", "models") if words.startswith("evaluate") else ()
            made = self.program.run(*words.split(), *more)
            assert made.code == 0, made.err
        (saved,) = (folder / "models").rglob("config.json")
        saved.parent.rename(folder / "model")

    def outcomes(self, only: re.Pattern[str]) -> Iterator[Outcome]:
        """Try all cases, the sound ones first."""
        files = [one for one in FILES if only.search(f"{one.family}/{one.name}")]
        specs = [one for one in SPECS if only.search(f"{one.kind}/{one.name}")]
        for family in dict.fromkeys(one.family for one in files):
            yield self._sound(family)
        for number, file in enumerate(files):
            case = self.folder / f"case-{number}"
            lay(file, case, self._sound_folder(file.family))
            yield self._run(file.family, file.name, command(file, case.name))
            with suppress(FileNotFoundError):
                shutil.rmtree(case)
        by_file = {kind: work for kind, work in self.requests.items() if work.command != "launch"}
        for kind in dict.fromkeys(one.kind for one in specs):
            if isinstance(by_file.get(kind) and by_file[kind].command, str):
                config = self._config(kind, "sound", json.dumps(self._sound_request(kind)).encode())
                yield self._run(kind, SOUND, (str(by_file[kind].command), "--config", config))
        for number, spec in enumerate(specs):
            work = by_file.get(spec.kind)
            is_empty = not spec.place and spec.value in {"", "null"}  # to a command, all defaults
            if work is not None and isinstance(work.command, str) and not is_empty:
                body = spec.body(self._sound_request(spec.kind))
                config = self._config(spec.kind, f"spec-{number}", body)
                yield self._run(spec.kind, spec.name, (work.command, "--config", config))
        if specs:
            with self._service() as (client, process):
                yield from self._answers(client, process, specs)

    def _sound_folder(self, family: str) -> Path | None:
        named = {"teacher": "teacher", "student": "model", "graph": "graphs"}
        return self.folder / named[family] if family in named else None

    def _sound_request(self, kind: str) -> dict[str, Any]:
        request = dict(self.requests[kind].request)
        request.pop("name", None)
        if kind == "distillation":
            request["training"] = {**request["training"], "steps": 2}
        return request

    def _config(self, kind: str, name: str, body: bytes) -> str:
        path = self.folder / f"{kind}-{name}.json"
        path.write_bytes(body)
        return path.name

    def _sound(self, family: str) -> Outcome:
        words = {
            "corpus": "corpus build --teacher teacher --corpus corpus.txt",
            "teacher": "full-distill --arch 1,2,24,48,gelu --teacher teacher --steps 1 "
            "--corpus corpus.txt --max-length 16 --output sound-student",
            "task": "evaluate teacher --suite glue --data-dir glue --show-data",
            "input": "predict model --input corpus.txt",
            "student": "predict model good",
            "table": "tabular show minilm",
            "graph": "benchmark-model graphs --runtime onnx --length 8",
            "request": "search --config tiny.yaml",
        }[family]
        return self._run(family, SOUND, tuple(words.split()))

    def _run(self, family: str, name: str, words: tuple[str, ...]) -> Outcome:
        began, mib = time.monotonic(), 0.0
        process = self.program.fork(*words)
        itself = psutil.Process(process.pid)
        while not process.has_ended:
            mib = max(mib, peak_mib(itself))
            if time.monotonic() - began > PATIENCE_SECONDS:
                with suppress(ProcessLookupError):  # just now it ended by itself
                    process.send_signal(signal.SIGKILL)
            time.sleep(0.02)
        seconds = time.monotonic() - began
        finished = process.wait(0)
        canary = self.folder / CANARY
        broken = "Traceback" in finished.err or canary.exists() or finished.code not in (0, 1, 2)
        canary.unlink(missing_ok=True)
        said = self._last_line(finished.err or finished.out)
        return Outcome(family, name, "command", finished.code, seconds, mib, said, broken)

    def _last_line(self, text: str) -> str:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        last = next((one for one in lines if one.startswith("error:")), (lines or [""])[-1])
        return last.replace(str(self.folder), "…")[:300]

    @contextmanager
    def _service(self) -> Iterator[tuple[httpx.Client, psutil.Process]]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        service = self.program.fork("serve", "--port", str(port), "--no-coordinator")
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                while True:
                    assert not service.has_ended, service.wait(0).err
                    with suppress(httpx.TransportError):
                        if client.get("/healthz").status_code == 200:
                            break
                    time.sleep(0.1)
                yield client, psutil.Process(service.pid)
        finally:
            service.send_signal(signal.SIGTERM)
            service.wait(60)

    def _answers(
        self, client: httpx.Client, process: psutil.Process, specs: list[Any]
    ) -> Iterator[Outcome]:
        headers = {"Content-Type": "application/json"}
        for kind in dict.fromkeys(spec.kind for spec in specs):
            body = json.dumps(self._sound_request(kind)).encode()
            yield self._answer(client, process, kind, SOUND, body, headers)
        for spec in specs:
            body = spec.body(self._sound_request(spec.kind))
            yield self._answer(client, process, spec.kind, spec.name, body, headers)

    def _answer(
        self,
        client: httpx.Client,
        process: psutil.Process,
        kind: str,
        name: str,
        body: bytes,
        headers: Mapping[str, str],
    ) -> Outcome:
        began = time.monotonic()
        path = f"/api/v1/{self.requests[kind].path}"
        answer = client.post(path, content=body, headers=headers)
        seconds = time.monotonic() - began
        mib = process.memory_info().rss / 2**20
        if answer.status_code == 202:
            made = answer.json()
            job = made["items"][0]["id"] if "items" in made else made["id"]
            client.patch(f"/api/v1/jobs/{job}", json={"action": "cancel"})
            said = ""
        else:
            said = str(answer.json()["detail"])
        code = answer.status_code
        said = self._last_line(said.replace("\n", " "))
        return Outcome(kind, name, "service", code, seconds, mib, said, code >= 500)


def peak_mib(process: psutil.Process) -> float:
    """The most memory that a process, or one below it, has had at a time."""
    found = [0]
    with suppress(psutil.NoSuchProcess):
        for one in (process, *process.children(recursive=True)):
            with suppress(FileNotFoundError, ProcessLookupError):
                status = Path(f"/proc/{one.pid}/status").read_text("utf-8")
                found += map(int, re.findall(r"VmHWM:\s+(\d+) kB", status))
    return max(found) / 1024


def sound_of(outcomes: list[Outcome], one: Outcome) -> float:
    """Memory of the sound case beside one, in MiB."""
    found = (o.mib for o in outcomes if (o.family, o.by, o.name) == (one.family, one.by, SOUND))
    return next(found)


def page(outcomes: list[Outcome]) -> str:
    """Say what became of all cases, in Markdown."""
    cases = [one for one in outcomes if one.name != SOUND]
    amiss = [(one, one.amiss(sound_of(outcomes, one))) for one in cases]
    lines = [
        "# Hostile files and requests",
        "",
        "Files and requests that somebody made to hurt, or that came out of an accident, and what",
        f"becomes of them. Each has to end by itself within {MOST_SECONDS:.0f} s, in a sentence,",
        "with no gigabyte more than the same command on a sound one, and may run no code.",
        "`benchmarks/hostile.py` made this; every case with what was said is in `hostile.json`.",
        "",
        "| what | cases | done | refused | failed | longest, s | most MiB above sound | amiss |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for family, by in dict.fromkeys((one.family, one.by) for one in cases):
        of_it = [one for one in cases if (one.family, one.by) == (family, by)]
        done = sum(one.code in (0, 202) for one in of_it)
        refused = sum(one.code == 2 or 400 <= one.code < 500 for one in of_it)
        more = max(one.mib - sound_of(outcomes, one) for one in of_it)
        bad = sum(bool(why) for one, why in amiss if (one.family, one.by) == (family, by))
        what = f"{family.replace('_', ' ')}, by {by}"
        figures = (len(of_it), done, refused, len(of_it) - done - refused)
        longest = max(one.seconds for one in of_it)
        lines.append(
            f"| {what} | {' | '.join(map(str, figures))} | {longest:.1f} | {more:.0f} | {bad} |"
        )
    lines += ["", "What was amiss:" if any(why for _, why in amiss) else "Nothing was amiss.", ""]
    lines += [f"- {o.family}, {o.name} ({o.by}): {why}: {o.said}" for o, why in amiss if why]
    return "\n".join(lines).rstrip("\n") + "\n"


if __name__ == "__main__":
    main()
