"""`nox` runs the tests on a virtual GPU."""

from __future__ import annotations

import nox


@nox.session
def cuda(session: nox.Session) -> None:
    session.install("pytest", "torch-loom")
    session.run("pytest", "--loom-sanitize", "--loom-memory", "1GiB", *session.posargs)
