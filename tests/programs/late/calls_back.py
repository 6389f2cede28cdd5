"""A module whose import calls what the test has put into a module `during`."""

import during

during.hook()
value = "own"
