from tests.raising import raises
from tests.reports.programs.races.prefetch import total

total(True)
raises("CUDASanitizerErrors", "is not ordered after", lambda: total(False))
