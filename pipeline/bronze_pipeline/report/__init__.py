"""What a bronze table holds, as one page for people.

    counts, completeness, delays, quarantine: what is found -> page: sections of plots and tables

Nothing here needs Spark. Files are read one after the other, only the columns that a question needs, and
not at all where the table's log has the answer.
"""
