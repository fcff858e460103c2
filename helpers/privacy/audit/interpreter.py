"""Fits in another process, whose interpreter has the audited library: nothing that it does can disturb the audit."""

import os
import pickle
import struct
import subprocess
from pathlib import Path
from typing import Any

from helpers.privacy.audit import observation
from helpers.privacy.audit.observation import Features

_SERVE = "import runpy, sys; runpy.run_path(sys.argv[1])['serve'](sys.argv[2])"


class Interpreter:
    """A process that makes one fit after the other and says what each shows; a context manager.

    Parameters
    ----------
    python : str or Path
        Interpreter with NumPy, and what the target imports.
    target : str
        "FILE.py:NAME", as `observation.load` understands it.
    clock : bool
        Whether CPU time is part of what is seen.

    Raises
    ------
    ValueError
        No such interpreter, or it cannot load the target.
    """

    def __init__(self, python: str | Path, target: str, *, clock: bool = False):
        self.clock = clock
        # One thread, so that CPU time is that of the fit, and many small fits do not wait for each other.
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        try:
            process = subprocess.Popen(
                [str(python), "-c", _SERVE, observation.__file__, target],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=os.environ | threads,
            )
        except OSError as error:
            raise ValueError(f"python must be an interpreter, got {str(python)!r}: {error.strerror}") from None
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self.questions, self.answers = process, process.stdin, process.stdout
        try:
            refused = self._answer()
        except EOFError:
            raise ValueError(f"python must be an interpreter with NumPy, got {str(python)!r}") from None
        if refused is not None:
            self.close()
            raise refused

    def look(self, X: Any, y: Any, probes: Any) -> Features:
        """What one fit shows; see `observation.observe`.

        Raises
        ------
        ValueError
            The audited code has ended its process.
        """
        X, probes = (
            {name: part[name].tolist() for name in part} if hasattr(part, "columns") else part for part in (X, probes)
        )
        return self._asked((X, y, probes, self.clock))

    def versions(self) -> dict[str, str]:
        """Of the other Python and its packages."""
        return self._asked(None)

    def _asked(self, question: Any) -> Any:
        content = pickle.dumps(question, protocol=4)
        try:
            self.questions.write(struct.pack("<Q", len(content)) + content)
            self.questions.flush()
            return self._answer()
        except (BrokenPipeError, EOFError):
            raise ValueError(
                f"the audited code must not end its interpreter, got exit code {self.process.wait()}"
            ) from None

    def _answer(self) -> Any:
        size = self.answers.read(8)
        if len(size) < 8:
            raise EOFError
        return pickle.loads(self.answers.read(*struct.unpack("<Q", size)))

    def close(self) -> None:
        """End the process."""
        self.questions.close()
        self.answers.close()
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> "Interpreter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
