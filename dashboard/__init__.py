"""The page of `drawbridge dashboard`: what the command shows, in a browser, as it changes.

`command.py` serves it on this machine, `__main__.py` in the cluster. `pages.py` has the overview, the pages that the
table of features names, and those of single objects; `app.py` renders them, and sends each again when it has changed.
"""
