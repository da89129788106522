/* peers.h: the CTAs of a cluster (DESIGN calls other things clusters, so they are peers here).

   A launch without a cluster has clusters of one CTA: all of this is right there too. A CTA's
   shared memory may be written by its peers from peers_wait on that follows the first peers_arrive
   of all, and what they wrote may be read after another pair. */
#ifndef PISA_SM90_PEERS_H
#define PISA_SM90_PEERS_H

#include "compiler/ir/ir.h"

val peers_rank(struct ir *k); /* i32, of this CTA; grids put adjacent CTAs in a cluster */
/* All threads of all peers: writes before an arrival are seen after the wait. Pairs take turns. */
void peers_arrive(struct ir *k);
/* The same of a first arrival, which has no writes to pass on. */
void peers_arrive_relaxed(struct ir *k);
void peers_wait(struct ir *k);
/* Where peer |rank| has what lies at |shared_pointer| here: i32, an address for peers_store. */
val peers_address(struct ir *k, val shared_pointer, val rank);
/* |n| i32, 1, 2 or 4 of them, aligned to as many words, to |address| + |bytes|. */
void peers_store(struct ir *k, int n, const val *words, val address, int bytes);
/* The same (st.async), and an mbarrier of that peer, |barrier| as peers_address says, has 4 n bytes
   less to come: who has waited for it sees them. The peer must not end before. A barrier of the
   cluster instead would write back and forget caches: it takes several times as long. */
void peers_send(struct ir *k, int n, const val *words, val address, int bytes, val barrier);

#endif
