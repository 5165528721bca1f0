"""Write all pictures to ``docs/``."""

from docs.pictures import DOCS, PICTURES

for name, svg in PICTURES.items():
    (DOCS / name).write_text(svg(), encoding="utf-8")
