from tests.device.tape_programs import PROGRAMS, listening, operands, tell, what_is_told

given = operands()
with listening() as tape:
    PROGRAMS["sort"](given)
assert what_is_told(tape) == tell(PROGRAMS["sort"], given), tape.records
assert tape.copies == 0
