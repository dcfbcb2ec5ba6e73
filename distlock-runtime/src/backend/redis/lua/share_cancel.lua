-- SHARE_CANCEL
-- KEYS lock, shares, queue, tombstones          ARGV owner, tombstone's life in ms
-- Gives 1: it held a share | 0: it didn't. Repeat: 0, with a new tombstone. Leaving the queue comes first: a write that needs no
-- memory, so that a full server takes the rest.
local stood = leave_line(ARGV[1])
local stands = open()
local held = 0
if stands and not stood and deadline_of(ARGV[1]) then
  held = 1
  drop({ ARGV[1] })
end
local refused = bury(KEYS[4], ARGV[1], ARGV[2], now)
if stands then
  settle()
  keep(stands)
end
return refused or held
