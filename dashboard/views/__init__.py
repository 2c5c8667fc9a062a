"""One file a noun: reads through ``queries``, acts through ``operations``, answers with a template.

View, address name and template carry the same name. On a crash the request fails and nothing else.
"""
