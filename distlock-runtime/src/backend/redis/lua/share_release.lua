-- SHARE_RELEASE
-- KEYS lock, shares, queue          ARGV owner [, ms that the share must stay taken]
-- Gives 1: it was ours | 0: it wasn't. Repeat: 0.
local stands = open()
if not stands then return 0 end
local held = 0
if deadline_of(ARGV[1]) then
  held = 1
  if ARGV[2] then
    -- Kept under another name: a renewal or an attempt that is still under way must not lengthen it. It comes before the other
    -- goes, so that an explicit owner's holds have no end in between.
    local weight, label = share_of(ARGV[1])
    local kept = string.reverse(ARGV[1])
    drop({ kept })
    hold(kept, weight, label, now + ARGV[2])
  end
  drop({ ARGV[1] })
end
settle()
keep(stands)
return held
