-- SHARE_RELEASE
-- KEYS lock, shares, queue          ARGV owner [, ms that the share must stay taken]
-- Gives 1: it was ours | 0: it wasn't. Repeat: 0.
local stands = open()
if not stands then return 0 end
local held = 0
if deadline_of(ARGV[1]) then
  held = 1
  if ARGV[2] then
    redis.call('pexpire', KEYS[1], ARGV[2])
    redis.call('zadd', KEYS[2], digits(now + ARGV[2]), ARGV[1])
  else
    drop({ ARGV[1] })
  end
end
settle()
keep(stands)
return held
