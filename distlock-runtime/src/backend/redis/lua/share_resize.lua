-- SHARE_RESIZE
-- KEYS lock, shares, queue          ARGV limit
-- Gives 1: it has this limit now | 0: there is no such semaphore in use. Repeat: the same.
local stands, failure = open()
if failure then return failure end
if not stands then return 0 end
settle()
if is_empty() then
  keep(stands)
  return 0
end
if stands ~= 'sem' then
  keep(stands)
  return conflict('another kind of lock (' .. stands .. ')')
end
limit = tonumber(ARGV[1])
settle()
keep(stands)
return 1
