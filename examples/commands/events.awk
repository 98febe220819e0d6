# Prints the events of a year of an iCalendar file (RFC 5545) as a list, and fails where there are none.
#
# Times are shown as they stand, with their zone. An event that repeats is shown once, with its rule.

function finish(line,    name, value, colon) {
    colon = index(line, ":")
    name = substr(line, 1, colon - 1)
    value = substr(line, colon + 1)
    if (line == "BEGIN:VEVENT") { start = ""; end = ""; summary = "?"; place = ""; rule = ""; zone = ""; inside = 1 }
    else if (line == "END:VEVENT") { if (substr(start, 1, 4) == year) add(); inside = 0 }
    else if (!inside) return
    else if (name ~ /^DTSTART(;|$)/) {
        start = value
        if (match(name, /TZID=[^;:]*/)) zone = " " substr(name, RSTART + 5, RLENGTH - 5)
    }
    else if (name ~ /^DTEND(;|$)/) end = value
    else if (name ~ /^SUMMARY(;|$)/) summary = plain(value)
    else if (name ~ /^LOCATION(;|$)/) place = plain(value)
    else if (name ~ /^RRULE(;|$)/) rule = value
}

function plain(text) {
    gsub(/\\[nN]/, " ", text)
    gsub(/\\/, "", text)
    return text
}

function date(text) { return substr(text, 1, 4) "-" substr(text, 5, 2) "-" substr(text, 7, 2) }

function time(text) { return substr(text, 10, 2) ":" substr(text, 12, 2) }

function add(    shown, at) {
    shown = "- **" date(start)
    if (length(start) > 8) {
        shown = shown " " time(start)
        if (length(end) > 8) shown = shown "–" (date(end) == date(start) ? "" : date(end) " ") time(end)
        shown = shown (start ~ /Z$/ ? " UTC" : zone)
    }
    shown = shown "** " summary (place == "" ? "" : " (" place ")") (rule == "" ? "" : ", repeats: " rule)
    # Each to its place, since not every awk can sort.
    for (at = ++count; at > 1 && dates[at - 1] > start; at--) { dates[at] = dates[at - 1]; events[at] = events[at - 1] }
    dates[at] = start
    events[at] = shown
}

{ sub(/\r$/, "") }
# A line that begins with a blank goes on where the one before ended.
/^[ \t]/ { held = held substr($0, 2); next }
{ finish(held); held = $0 }

END {
    finish(held)
    if (!count) exit 1
    print "# " year "\n"
    for (at = 1; at <= count; at++) print events[at]
}
