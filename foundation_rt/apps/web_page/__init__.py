"""Web pages of applications: their files with a strict policy, and the parts that all pages share.

files     the files of a page, with their headers
shared/   modules and styles that stand beside the own ones of every page
"""
