-- RELEASE
-- KEYS lock, queue, waiters          ARGV value [, ms that the lock must stay taken]
-- Gives 1: it was ours | 0: it wasn't. Repeat: 0.
-- Without waiters it ends here, before anything of what follows is set up.
if redis.pcall('get', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] then
  -- Under another name: a renewal or an attempt that is still under way must not lengthen it. PEXPIRE first: a write that
  -- needs no memory, so that a full server takes the other.
  redis.call('pexpire', KEYS[1], ARGV[2])
  local kept = string.reverse(string.sub(ARGV[1], 1, 32)) .. string.sub(ARGV[1], 33)
  redis.call('set', KEYS[1], kept, 'PX', ARGV[2])
  return 1
end
redis.call('del', KEYS[1])
if redis.call('exists', KEYS[2]) == 0 then return 1 end
