"""Writers that leave no half-written file, and readers to which damage is one line.

A file is written into a temporary one beside the target, synced and renamed.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import secrets
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from recbole_denoiser.errors import UserError

# what NumPy's and zip's readers raise for bytes that are not what they expect
_DAMAGED = (OSError, ValueError, EOFError, NotImplementedError, MemoryError, SyntaxError, TypeError, OverflowError,
            zipfile.BadZipFile, zlib.error, struct.error)  # fmt: skip

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def write_atomically(file: Path, write: Any) -> None:
    """``write(stream)`` into a temporary file beside ``file``, synced and renamed: ``file`` is never half-written."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.parent / f".{file.name}.{secrets.token_hex(8)}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)  # less the user's umask
    except OSError as error:
        raise UserError(f"Cannot write in {file.parent}: {error.strerror or error}.") from error
    try:
        with os.fdopen(descriptor, "wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, file)
    except (OSError, RuntimeError) as error:
        # torch meets the system's error and raises one of its own, about positions in the file
        reason = error.__context__ if isinstance(error.__context__, OSError) else error
        raise UserError(f"Cannot write {file}: {reason}. What was there before is unchanged.") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


@contextlib.contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Of all processes that ask for this folder one is inside; the next comes in when it leaves, or dies.

    Where the system has no such locks everyone comes in at once, so what is done inside must bear that.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def remove_leftovers(file: Path) -> None:
    """Remove the temporary files that a process killed in the middle of writing ``file`` has left beside it."""
    for temporary in file.parent.glob(f".{glob.escape(file.name)}.*"):
        temporary.unlink(missing_ok=True)


def require_writable(folder: Path) -> None:
    """UserError unless files can be written into ``folder``: better before the training than after it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UserError(f"Cannot write in {folder}: {error.strerror or error}.") from error


def write_text(file: Path, text: str) -> Path:
    """UTF-8 text, written atomically; returns the file."""
    write_atomically(file, lambda stream: stream.write(text.encode("utf-8")))
    return file


def write_json(file: Path, content: Any) -> None:
    """Plain JSON, written atomically; NaN is not JSON and is refused."""
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    write_text(file, text)


def write_arrays(file: Path, arrays: dict[str, np.ndarray]) -> None:
    """Compressed NumPy arrays, written atomically."""
    write_atomically(file, lambda stream: np.savez_compressed(stream, **arrays))  # type: ignore[arg-type]


def read_json(path: Path, missing: str | None = None) -> Any:
    """The content of a JSON file; whatever is wrong with it is one line."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(missing or f"There is no file {path}.") from None
    except RecursionError:
        raise UserError(f"{path} cannot be read as JSON: it is nested too deeply.") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as JSON: {error}") from error


def read_arrays(path: Path, *names: str) -> dict[str, np.ndarray]:
    """These arrays of an .npz file, or all of them, without pickles; whatever is wrong with the file is one line."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise ValueError("it is no .npz file")
        with loaded as arrays:
            return {name: arrays[name] for name in names or arrays.files}
    except KeyError as error:
        raise UserError(f"{path} cannot be read: {str(error.args[0]).splitlines()[0]}.") from error
    except _DAMAGED as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(f"{path} cannot be read: {reason}") from error


def copy(source: Path, file: Path) -> None:
    """The content of another file, written atomically."""
    with source.open("rb") as stream:
        write_atomically(file, lambda target: shutil.copyfileobj(stream, target))


def is_plain_name(text: str) -> bool:
    """Whether ``text`` names a file or folder right here: no separator, no way up, no control character."""
    return (
        0 < len(text.encode("utf-8", "replace")) <= 200
        and text.strip() not in ("", ".", "..")
        and not any(sign in "/\\:" or not sign.isprintable() for sign in text)
    )


def require_plain_name(text: str, what: str) -> str:
    """``text``, or a UserError that says what ``what`` may be: with ``../x`` a run would be written elsewhere."""
    if not is_plain_name(text):
        raise UserError(
            f"{what} = {text!r} is not allowed: it takes a plain name of at most 200 bytes, without / \\ : or control "
            f"characters, and not . or .. alone."
        )
    return text
