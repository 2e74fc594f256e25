import sys, time
from tests.sim.planted import PLANTS
from sim.cluster import play
for name, plant in PLANTS.items():
    if len(sys.argv) > 1 and name not in sys.argv[1:]: continue
    caught=[]; t=time.time()
    for seed in range(1000,1040):
        try: play(seed, 2000, None, plant)
        except Exception as e:
            caught.append((seed, type(e).__name__, str(e)[:140].replace("\n"," ")))
            if len(caught)>=3: break
    print(name, round(time.time()-t,1), caught, flush=True)
