"""Says whether Python's re finds a pattern in a text: lines of "hex hex" in, "1" or "0" out."""
import re
import sys

for line in sys.stdin:
    pattern, text = (bytes.fromhex(part).decode("utf-8") for part in line.rstrip("\n").split(" "))
    print(int(re.search(pattern, text, re.ASCII) is not None))
