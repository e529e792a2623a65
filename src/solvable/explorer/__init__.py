"""The explorer: a local page on which a model's exact curves follow the sliders and simulated points land on them.

The page is built from the models' declarations, so a new model needs no code here.

    command.py      `solvable explore`: address, browser, shutdown
    app.py          routes and handlers
    security.py     access control: token, cookie, Host, Origin, sizes, rates, headers
    answers.py      requests and responses as JSON
    views.py        the state of the screen, checked with the messages of the command line
    gallery.py      the list of models and their thumbnails, without importing JAX
    thumbnails.py   makes the thumbnails in advance
    search_words.py words of a set-up, by which its model is found
    links.py        links of the page, opened anywhere
    snapshot.py     a view as one HTML file
    kept.py         figures with kept results
    describe.py     the description of a model for the page
    theory.py       curves: compiled once, cached, dropped when a newer request arrives
    jobs.py         simulations: a worker process, its events, cancelling
    worker.py       the worker process, which also judges claims
    waves.py        the order of its work: seed by seed
    ahead.py        its programs, compiled in parallel and in advance
    turns.py        programs that run one at a time
    room.py         memory for compiled programs
    defaults.py     the view with which a model opens
    reproduce.py    the same numbers in Python and in a shell
    files.py        exported figures and data
    stored_study.py a stored study, shown in the same way
"""
