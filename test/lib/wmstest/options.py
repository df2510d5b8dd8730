"""The command line options that conformance/run and conformance/fuzz_run have in common."""
from .runner import Settings


def add_options(parser):
    parser.add_argument("--crash", action="store_true", help="kill -9 the server or its worker at every restart step")
    parser.add_argument("--crash-random", action="store_true", help="--crash, and also shortly after the commit before each restart step")
    parser.add_argument("--source", choices=["wal", "queue"], default="wal", help="plain tables, or queue tables")
    parser.add_argument("--split", action="store_true", help="one INSERT statement a row, in the same transactions")
    parser.add_argument("--dsn", help="use this server instead of own ones")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="so many cases at a time")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="NAME=VALUE", help="setting of own servers (repeatable)")
    parser.add_argument("--keep", action="store_true", help="leave servers and databases for a look")
    parser.add_argument("--verbose", action="store_true", help="name the cases that pass, too")


def settings_of(options, parser, reasons=None):
    """The options as Settings; ends with a message where they do not go together."""
    if options.dsn and (options.crash or options.crash_random):
        parser.error("a server given by --dsn cannot be crashed")
    if options.dsn and options.settings:
        parser.error("--set is for own servers only")
    if not all("=" in s for s in options.settings):
        parser.error("--set wants NAME=VALUE")
    return Settings(source=options.source, dsn=options.dsn, jobs=options.jobs, crash=options.crash, crash_random=options.crash_random,
                    split=options.split, keep=options.keep, verbose=options.verbose, reasons=reasons or {},
                    server_settings=dict(s.split("=", 1) for s in options.settings))
