from __future__ import annotations

import doctest
import unittest

from recloser_guard import backoff, moments, names, stream, transport


class Examples(unittest.TestCase):
    def test_examples_in_docstrings_are_true(self) -> None:
        for module in (backoff, moments, names, stream, transport):
            with self.subTest(module.__name__):
                ran = doctest.testmod(module)
                assert ran.attempted
                assert not ran.failed


if __name__ == "__main__":
    unittest.main()
