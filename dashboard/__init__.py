"""The page of `drawbridge dashboard`: what the command shows, in a browser, as it changes.

`app.py` serves it, `reader.py` and `writer.py` call the API server; all else is functions of values.
"""
