"""The catalog: keeps the stored flow versions in step with the files of the flow folders.

Comes in: Python files. Goes out: versions with their source bundles, flows with their next data
interval, and for each file what is wrong with it.
Who runs it: a thread of every scheduler; several at once are safe, since a version is addressed by
its content. What never happens here: user code in this process; a flow file is loaded in a process
of its own, with a time limit, and whatever it does harms nothing. A crash leaves the last good
versions, and the next scan reads the files anew.
"""
