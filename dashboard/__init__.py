"""The page of `drawbridge dashboard`: what the command shows, in a browser, as it changes.

`command.py` serves it on this machine, `proxied.py` in the cluster. `pages.py` reads for each page what the command
reads, and hands it on as a value; `app.py` renders that, and sends it again when it has changed. All else is functions
of values: what a page makes of what the command shows.
"""
