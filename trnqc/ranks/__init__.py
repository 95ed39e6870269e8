"""The processes of one job: how they share work, talk to one another, and notice that one has failed.

groups -> transport -> watch
"""
