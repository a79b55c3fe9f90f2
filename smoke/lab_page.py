"""Checks the page of `lab ddos`: well-formed, three figures, no script.

    lab_page.py FILE
"""

import sys

from page_syntax import elements

with open(sys.argv[1], encoding="utf-8") as file:
    text = file.read()
elements(text)
assert text.count("<svg ") == 3 and text.count('class="course"') == 2, text.count("<svg ")
assert "prefers-color-scheme: dark" in text and "<script" not in text and "NaN" not in text
