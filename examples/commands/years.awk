# Prints each year that an iCalendar file has events in.

/^BEGIN:VEVENT/ { inside = 1 }
/^END:VEVENT/ { inside = 0 }
inside && /^DTSTART[;:]/ {
    sub(/^[^:]*:/, "")
    year = substr($0, 1, 4)
    if (!seen[year]++) print year
}
