"""Making a failing case smaller: steps and rows are taken away as long as it still fails."""
import copy


def without_row(step, table, index):
    rows = step["insert"][table]
    return {**step, "insert": {**step["insert"], table: rows[:index] + rows[index + 1:]}}


def candidates(case):
    """Smaller cases, the greatest cuts first: all after a step, one step, one row."""
    steps = case["steps"]
    for length in range(1, len(steps)):
        yield steps[:length]
    for n in reversed(range(len(steps))):
        yield steps[:n] + steps[n + 1:]
    for n, step in enumerate(steps):
        for table, rows in step.get("insert", {}).items():
            for index in range(len(rows)):
                yield steps[:n] + [without_row(step, table, index)] + steps[n + 1:]


def shrink(case, fails, refill, attempts=200):
    """The smallest case found that still fails. fails(case) runs it; refill(case) gives its steps with the expected values
    that are right for it (every cut changes them), or None if there are none; attempts bounds the work."""
    case = copy.deepcopy(case)
    improved = True
    while improved and attempts > 0:
        improved = False
        for steps in candidates(case):
            attempts -= 1
            if attempts < 0:
                break
            refilled = refill({**case, "steps": steps})
            if refilled is not None and fails({**case, "steps": refilled}):
                case, improved = {**case, "steps": refilled}, True
                break
    return case
