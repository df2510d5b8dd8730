# wmstream: build, install, test.
#
#   make, make install      build and install for the server that PG_CONFIG names (default: test/pg-config)
#   make check              set up, build, install, run every suite; last line "N passed, N failed"
#   make check-quick        the suites that take seconds
#   make demo               replay a week of earthquakes through a stream, on a server of its own
#   make bench, make lint   the figures; the rules of the house alone
#
# PGXS has its own idea of "check", and it cannot even be read before the server packages are there.
# So this file is read in two ways: with one of the goals below it only runs scripts, and hands build goals
# to a second make; otherwise it is an ordinary PGXS makefile.

SCRIPT_GOALS = check check-quick demo bench lint setup

ifneq (,$(filter $(SCRIPT_GOALS),$(MAKECMDGOALS)))

.PHONY: $(MAKECMDGOALS) built
.NOTPARALLEL:

setup:
	@test/setup

built: setup
	@test/install

check: setup
	@test/check

check-quick: setup
	@SUITES="lint oracle regress isolation conformance" test/check

demo: built
	@demo/run

bench: built
	@test/bench/run

lint: setup
	@$(MAKE) --no-print-directory -s all
	@test/lint/run

$(filter-out $(SCRIPT_GOALS),$(MAKECMDGOALS)): setup
	$(MAKE) $@

else

PG_CONFIG ?= $(shell test/pg-config)
PGXS := $(shell $(PG_CONFIG) --pgxs)
ifeq (,$(wildcard $(PGXS)))
$(error no PostgreSQL server headers found: run test/setup, or set PG_CONFIG)
endif

MODULE_big = wmstream
OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/*.c src/*/*.c)))
EXTENSION = wmstream
DATA = $(wildcard wmstream--*.sql)
EXTRA_CLEAN = test/tmp

# The server's headers come in as system headers: -Wextra is for our code, not for theirs.
PG_CPPFLAGS = -Isrc -isystem $(shell $(PG_CONFIG) --includedir-server)
PG_CFLAGS = -Wall -Wextra -Werror -Wno-unused-parameter -Wno-missing-field-initializers

# No bitcode for JIT: it would need clang and double the build, and nothing of ours is inlined into queries.
override with_llvm = no

include $(PGXS)

$(OBJS): Makefile $(wildcard src/*.h src/*/*.h)

endif
