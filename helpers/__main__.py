"""Where `dpbook` starts: with next to no imports, so that an interruption is answered from the first moment on."""

import sys


def main() -> int:
    """As `helpers.cli.main`."""
    for stream in (sys.stdout, sys.stderr):
        # In a terminal that knows no more than ASCII a title must not raise.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # streams of text
    try:
        from helpers import cli

        return cli.main()
    except KeyboardInterrupt:
        print("dpbook: interrupted", file=sys.stderr)
        return 130  # as shells have it


if __name__ == "__main__":
    sys.exit(main())
