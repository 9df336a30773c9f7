"""Who works on a grid or a study: a Dask cluster (its own, or one that runs already), or plain processes.

All are ``concurrent.futures`` executors, so that the grid knows no difference. With Dask an attempt whose worker was
killed is made again by another worker; a cell then resumes after its last epoch.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from recbole_denoiser.errors import UserError
from recbole_denoiser.experiments.attempt import Attempt, in_worker

NO_DASK = "--scheduler needs Dask: pip install 'recbole-denoiser[cluster]'."
# a cell that brings down this many workers, one after the other, is reported instead of tried again
ALLOWED_FAILURES = 1
_CONNECT_SECONDS = 20
_CLOSE_SECONDS = 15


@dataclass
class Engine:
    """Where attempts are made."""

    name: str
    submit: Callable[[Attempt], Future[str | None]]
    slots: Callable[[], int]  # attempts that can run at a time, now


def default_jobs() -> int:
    """One process per core that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def engine(jobs: int | None, scheduler: str | None = None) -> Iterator[Engine]:
    """An engine for ``jobs`` attempts at a time (default: one per core, or all that the cluster takes)."""
    if jobs is not None and jobs < 1:
        raise UserError(f"--jobs {jobs} must be at least 1.")
    has_dask = importlib.util.find_spec("distributed") is not None
    if scheduler is not None and not has_dask:
        raise UserError(NO_DASK)
    opened = _dask(jobs, scheduler) if has_dask else _processes(jobs or default_jobs())
    with _termination_is_an_interrupt(), opened as found:
        yield found


def reason_of(future: Future[str | None]) -> str | None:
    """Why an attempt failed, once it has ended; None if it went well."""
    try:
        return future.result()
    except CancelledError:
        return "cancelled by the cluster"
    except Exception as error:  # whatever the cluster says about its workers, such as KilledWorker
        return " ".join([f"{type(error).__name__}:", *str(error).strip().splitlines()[:1]])


@contextmanager
def _processes(jobs: int) -> Iterator[Engine]:
    """Threads of this process, each of which starts the processes of its attempts."""
    stop = threading.Event()
    pool = ThreadPoolExecutor(jobs, thread_name_prefix="attempt")
    try:
        yield Engine(f"{jobs} processes", lambda attempt: pool.submit(attempt.run, stop.is_set), lambda: jobs)
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _dask(jobs: int | None, scheduler: str | None) -> Iterator[Engine]:
    import dask
    from distributed import Client, LocalCluster

    quiet = {
        "distributed.scheduler.allowed-failures": ALLOWED_FAILURES,
        "distributed.logging.distributed": "error",
        # watching itself costs Dask 5 % of a core for a grid, which the trainings need; so it is 1 %
        "distributed.worker.profile.enabled": False,
        "distributed.admin.tick.interval": "500ms",
    }
    with dask.config.set(quiet):
        cluster = None
        if scheduler is None:
            cluster = LocalCluster(
                n_workers=jobs or default_jobs(),
                threads_per_worker=1,
                processes=True,
                memory_limit=0,  # the workers hold nothing: an attempt is a process of its own
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
            )
        try:
            client = Client(cluster if cluster is not None else scheduler, timeout=_CONNECT_SECONDS)
        except (OSError, TimeoutError, ValueError) as error:
            raise UserError(f"The scheduler {scheduler} cannot be reached: {error}") from error
        try:
            print(f"Dask dashboard: {client.dashboard_link}", file=sys.stderr)
            yield _client_engine(client, jobs if scheduler is not None else None, scheduler)
        finally:
            client.close(timeout=_CLOSE_SECONDS)
            if cluster is not None:
                cluster.close(timeout=_CLOSE_SECONDS)


def _client_engine(client: Any, jobs: int | None, scheduler: str | None) -> Engine:
    executor = client.get_executor()

    def slots() -> int:
        threads = sum(client.nthreads().values())
        return threads if jobs is None else min(jobs, threads)

    name = "Dask on this machine" if scheduler is None else f"Dask at {scheduler}"
    return Engine(name, lambda attempt: executor.submit(in_worker, attempt), slots)


@contextmanager
def _termination_is_an_interrupt() -> Iterator[None]:
    """Inside the context, kill and a closed terminal do what Ctrl-C does."""
    before: dict[int, Any] = {}
    try:
        for name in ("SIGTERM", "SIGHUP"):
            if hasattr(signal, name):
                number = getattr(signal, name)
                before[number] = signal.signal(number, signal.default_int_handler)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
