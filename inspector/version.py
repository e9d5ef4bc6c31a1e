"""The version, in the one place that the wheel, the command line and `run.json` read."""

VERSION = "0.1.0"
