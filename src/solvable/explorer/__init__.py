"""The explorer: a local page on which a model's exact curves follow the sliders and simulated points land on them.

Everything on it is made from the models' declarations, so a new model needs no code here.

    command.py      `solvable explore`: the address, the browser, the end
    app.py          which address is answered by what
    security.py     who is answered at all: token, cookie, Host, Origin, sizes, rates, headers
    views.py        what is on the screen, checked with the sentences of the command line
    gallery.py      the models in one line each, before JAX is imported
    told.py         what a model says of itself, for the page
    theory.py       curves: compiled once, cached, given up when a newer request is there
    jobs.py         simulations: a worker process, its events, cancelling
    worker.py       that process
    reproduce.py    the same numbers in Python and in a shell
    files.py        pictures and data to take away; thumbnails
    opened.py       a stored study, looked at the same way
"""
