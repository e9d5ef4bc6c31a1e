"""What the command `logit-inspector` starts: the command line of `inspector`, if that name is ours in this environment.

A module of its own because another distribution on the index is called `inspector` too and puts its files where ours are;
what it leaves of our package fails in ways that explain nothing.
"""

import sys
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path


def main() -> int:
    """Run the command line and return its exit code."""
    other = _foreign()
    if other:
        print(f"error: {other}", file=sys.stderr)
        return 1
    from inspector.__main__ import run

    return run()


def _foreign() -> str:
    """Why `import inspector` would not give our package; empty where it does."""
    spec = find_spec("inspector")
    place = Path(spec.origin).parent if spec and spec.origin else None
    mend = "pip uninstall inspector, then pip install --force-reinstall --no-deps logit-inspector, or use an environment of its own"
    try:
        other = distribution("inspector")
    except PackageNotFoundError:
        if place is None or not (place / "version.py").is_file() or not (place / "inspection.py").is_file():
            return f"the package 'inspector' at {place} is not Logit Inspector's; move it away or use an environment of its own"
        return ""
    return f"the distribution inspector {other.version} is installed too and uses the same package name as Logit Inspector; {mend}"
