"""How pairs are divided: into blocks of one computation (`blocks`), and over ranks (`distribution`)."""
