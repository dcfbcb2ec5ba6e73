-- RELEASE
-- KEYS lock, queue, waiters          ARGV value [, ms that the lock must stay taken]
-- Gives 1: it was ours | 0: it wasn't. Repeat: 0.
-- Without waiters it ends here, before anything of what follows is set up.
if redis.pcall('get', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] then
  redis.call('pexpire', KEYS[1], ARGV[2])
  return 1
end
redis.call('del', KEYS[1])
if redis.call('exists', KEYS[2]) == 0 then return 1 end
