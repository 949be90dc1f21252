"""`drawbridge reservations`: which IPs are reserved, and the two things that are done to one by hand."""
