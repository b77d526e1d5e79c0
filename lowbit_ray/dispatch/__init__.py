"""The dispatcher: waiting submissions become one Ray job each, in a fair order, and are watched until they end.

order.py        who is next: pure, the same for the dispatcher, the service and `lowbit watch`
tickets.py      what was started and how often it failed, in the ledger; backoff and its bound
jobs.py         Ray's job server
dispatcher.py   one look at everything: settle what ended, stop what was cancelled, start what is next
"""
