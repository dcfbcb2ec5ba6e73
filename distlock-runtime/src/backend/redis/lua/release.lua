-- RELEASE, where the plain form of docs/wire.md isn't to be had, or has seen that somebody waits.
-- KEYS lock, queue, waiters          ARGV value [, ms that the lock must stay taken]
-- Gives 1: it was ours | 0: it wasn't. Repeat: 0. A lock that is free by now is handed on all the same.
-- Without waiters it ends here, before anything of what follows is set up.
local holder = redis.pcall('get', KEYS[1])
local released = holder == ARGV[1] and 1 or 0
if holder and released == 0 then return 0 end
if released == 1 then
  if ARGV[2] then
    -- Under another name: a renewal or an attempt that is still under way must not lengthen it. PEXPIRE first: a write that
    -- needs no memory, so that a full server takes the other.
    redis.call('pexpire', KEYS[1], ARGV[2])
    local kept = string.reverse(string.sub(ARGV[1], 1, 32)) .. string.sub(ARGV[1], 33)
    redis.call('set', KEYS[1], kept, 'PX', ARGV[2])
    return 1
  end
  redis.call('del', KEYS[1])
end
if redis.call('exists', KEYS[2]) == 0 then return released end
