"""Web pages of applications: their files with a strict policy, and the parts that all pages share.

requests    what pages ask for: routes, members, errors, and room for some at once
responses   what requests of a page are answered with; its files, with their headers
logins      logins at servers that a page begins
shared/     modules and styles that stand beside the own ones of every page
"""
