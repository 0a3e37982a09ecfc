"""Running the program as a user does: a process of its own, a home of its own."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kdnas.testing.forked import READ_AT_LOADING, Finished, Forked
from kdnas.testing.tiny_teacher import make_tiny_teacher

LONGEST_SECONDS = 240
WORDS = (
    *("river", "stone", "cloud", "tree", "bird", "wind", "light", "night", "road", "house"),
    *("garden", "door", "fire", "salt", "rain", "sea", "slow", "quick", "red", "green", "cold"),
    *("warm", "old", "new", "sings", "falls", "runs", "keeps", "turns", "opens"),
)


@dataclass(frozen=True)
class Program:
    """The program ``kdnas`` with a tiny teacher, a small corpus and a home of its own.

    Attributes:
        folder: working folder; holds ``home``, ``teacher``, ``corpus.txt`` and ``tiny.yaml``.
        first: called in the process of every command that is forked, before the command.
    """

    folder: Path
    first: Callable[[], None] | None = None

    @classmethod
    def make(cls, folder: Path) -> Program:
        """Make a working folder with everything that a search needs, in miniature."""
        generator = random.Random(0)
        make_tiny_teacher(folder / "teacher", layers=2, hidden=48, heads=4, words=WORDS)
        lines = [
            " ".join(generator.choice(WORDS) for _ in range(generator.randint(4, 14)))
            for _ in range(400)
        ]
        (folder / "corpus.txt").write_text("\n".join(lines) + "\n", "utf-8")
        (folder / "tiny.yaml").write_text(
            """
teacher: teacher
corpus: {source: corpus.txt, max_length: 16}
space:
  axes: {layers: [1, 2], heads: [2, 4], hidden: [24, 48], intermediate: [48, 96]}
proxy: {steps: 6, batch_size: 8, learning_rate: 2.0e-2, held_out: 16, fraction: 0.5}
goal: reward
controller: {strategy: controller, variant: once, epsilon_decay: spread, episodes: 3, candidates: 4}
latency: {length: 8, budget_seconds: 2}
backend: {name: local, threads: 1, group_size: 1, num_workers: 1}
""",
            "utf-8",
        )
        return cls(folder)

    @property
    def environment(self) -> dict[str, str]:
        """Environment of the commands: nothing of the user's own settings."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("KDNAS_")}
        return {
            **kept,
            "KDNAS_HOME": str(self.folder / "home"),
            "KDNAS_DATA_ROOTS": str(self.folder),  # for a coordinator; a command knows none
            "HF_HUB_OFFLINE": "1",
            # Locks of their own: a search on the same machine is not waited for.
            "KDNAS_LOCKS": str(self.folder / "locks"),
            "COLUMNS": "200",
        }

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start a command as a shell does, in a process group of its own."""
        return subprocess.Popen(
            [sys.executable, "-c", "from kdnas.cli.main import main; main()", *arguments],
            cwd=self.folder,
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def fork(self, *arguments: str, **environment: str) -> Forked:
        """Start a command quickly; none of its variables may matter to libraries as they load."""
        assert not any(name.startswith(READ_AT_LOADING) for name in environment)
        return Forked(arguments, self.folder, self.environment | environment, self.first)

    def run(self, *arguments: str, **environment: str) -> Finished:
        """Run a command to its end."""
        if any(name.startswith(READ_AT_LOADING) for name in environment):
            process = self.start(*arguments, **environment)
            out, err = process.communicate(timeout=LONGEST_SECONDS)
            return Finished(process.returncode, out, err)
        return self.fork(*arguments, **environment).wait(LONGEST_SECONDS)

    @contextmanager
    def coordinator(self, *options: str, **environment: str) -> Iterator[Forked]:
        """A coordinator, its runners forked as it is; ends in good order, and its log is shown."""
        process = self.fork("coordinator", *options, **environment)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            print(process.wait(120).err[-4000:])

    def interrupt_when(
        self,
        condition: Callable[[], bool],
        *arguments: str,
        signal_number: int = signal.SIGKILL,
    ) -> Finished:
        """Start a command and send it a signal as soon as a condition holds.

        Raises:
            AssertionError: the command ended before the condition held.
        """
        process = self.fork(*arguments)
        deadline = time.monotonic() + LONGEST_SECONDS
        while not condition():
            if process.has_ended or time.monotonic() > deadline:
                raise AssertionError(f"ended too early: {process.wait(0)}")
            time.sleep(0.05)
        os.kill(process.pid, signal_number)
        return process.wait(120)
