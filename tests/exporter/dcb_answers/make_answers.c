/* Writes answers to RTM_GETDCB as the kernel lays them out, from the structures of its own headers.
 *
 * cc -o make_answers make_answers.c && ./make_answers DIRECTORY
 */
#include <linux/dcbnl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <string.h>

/* Newer than the headers of some distributions. */
#define APP_TRUST_TABLE 11
#define SELECTOR_PCP 255

static unsigned char buffer[8192];
static size_t used;

static size_t put(unsigned short type, const void *data, size_t length)
{
	struct rtattr attribute = {RTA_LENGTH(length), type};
	size_t start = used;

	memcpy(buffer + used, &attribute, sizeof(attribute));
	memcpy(buffer + used + RTA_LENGTH(0), data, length);
	used += RTA_SPACE(length);
	return start;
}

static void end(size_t start)
{
	((struct rtattr *)(buffer + start))->rta_len = used - start;
}

static void application(unsigned char selector, unsigned char priority, unsigned short protocol)
{
	struct dcb_app entry = {selector, priority, protocol};

	put(DCB_ATTR_IEEE_APP, &entry, sizeof(entry));
}

static size_t begin(const char *name)
{
	struct dcbmsg message = {0, DCB_CMD_IEEE_GET, 0};

	memset(buffer, 0, sizeof(buffer));
	used = NLMSG_HDRLEN;
	memcpy(buffer + used, &message, sizeof(message));
	used += sizeof(message);
	put(DCB_ATTR_IFNAME, name, strlen(name) + 1);
	return put(DCB_ATTR_IEEE, "", 0);
}

static void finish(size_t ieee, unsigned char dcbx, const char *directory, const char *name)
{
	struct nlmsghdr header = {0, RTM_GETDCB, 0, 1, 4242};
	char path[4096];
	FILE *file;

	end(ieee);
	put(DCB_ATTR_DCBX, &dcbx, 1);
	header.nlmsg_len = used;
	memcpy(buffer, &header, sizeof(header));
	snprintf(path, sizeof(path), "%s/%s.bin", directory, name);
	file = fopen(path, "w");
	fwrite(buffer, 1, used, file);
	fclose(file);
}

/* PFC and half of the link for priority 3, packets told apart by their DSCP: all 64 are listed. */
static void lossless(const char *directory)
{
	struct ieee_ets ets = {0, 8, 0, {50, 0, 0, 50}, {0}, {0}, {0, 1, 2, 3, 4, 5, 6, 7}};
	struct ieee_pfc pfc = {8, 1 << 3, 0, 7, {1, 2, 3, 4}, {5, 6, 7, 8}};
	struct dcbnl_buffer sizes = {{0, 0, 0, 1, 0, 0, 0, 0}, {130944, 130816}, 261760};
	struct ieee_maxrate limits = {{0}};
	size_t ieee = begin("eth2"), table;

	ets.tc_tsa[0] = ets.tc_tsa[3] = IEEE_8021QAZ_TSA_ETS;
	ets.tc_tsa[7] = IEEE_8021QAZ_TSA_VENDOR;
	put(DCB_ATTR_IEEE_ETS, &ets, sizeof(ets));
	put(DCB_ATTR_IEEE_MAXRATE, &limits, sizeof(limits));
	put(DCB_ATTR_IEEE_PFC, &pfc, sizeof(pfc));
	put(DCB_ATTR_DCB_BUFFER, &sizes, sizeof(sizes));
	table = put(DCB_ATTR_IEEE_APP_TABLE, "", 0);
	for (int dscp = 0; dscp < 64; dscp++)
		application(IEEE_8021QAZ_APP_SEL_DSCP, dscp >> 3, dscp);
	end(table);
	finish(ieee, DCB_CAP_DCBX_HOST | DCB_CAP_DCBX_VER_CEE | DCB_CAP_DCBX_VER_IEEE, directory,
	       "lossless");
}

/* The switch decides, by LLDP that firmware speaks; nested attributes are marked as such. */
static void negotiated(const char *directory)
{
	struct ieee_ets ets = {1, 3, 0, {100}, {0}, {IEEE_8021QAZ_TSA_ETS}, {0}};
	struct ieee_pfc pfc = {4, 0, 0, 0, {0}, {0}}, of_switch = {8, 1 << 3 | 1 << 4, 0, 0, {0}, {0}};
	struct ieee_maxrate limits = {{0, 25000000}};
	unsigned char dscp = IEEE_8021QAZ_APP_SEL_DSCP, pcp = SELECTOR_PCP;
	size_t ieee = begin("ens1f0np0"), table;

	put(DCB_ATTR_IEEE_ETS, &ets, sizeof(ets));
	put(DCB_ATTR_IEEE_MAXRATE, &limits, sizeof(limits));
	put(DCB_ATTR_IEEE_PFC, &pfc, sizeof(pfc));
	table = put(DCB_ATTR_IEEE_APP_TABLE | NLA_F_NESTED, "", 0);
	application(IEEE_8021QAZ_APP_SEL_DGRAM, 3, 4791);
	application(IEEE_8021QAZ_APP_SEL_ETHERTYPE, 3, 0x8915);
	application(IEEE_8021QAZ_APP_SEL_DSCP, 6, 48);
	application(IEEE_8021QAZ_APP_SEL_DSCP, 4, 26);
	application(IEEE_8021QAZ_APP_SEL_DSCP, 3, 26);
	end(table);
	table = put(APP_TRUST_TABLE | NLA_F_NESTED, "", 0);
	put(DCB_ATTR_IEEE_APP, &dscp, 1);
	put(DCB_ATTR_IEEE_APP + 1, &pcp, 1);
	end(table);
	put(DCB_ATTR_IEEE_PEER_PFC, &of_switch, sizeof(of_switch));
	finish(ieee, DCB_CAP_DCBX_LLD_MANAGED | DCB_CAP_DCBX_VER_IEEE, directory, "negotiated");
}

int main(int count, char **arguments)
{
	const char *directory = count > 1 ? arguments[1] : ".";

	lossless(directory);
	negotiated(directory);
	return 0;
}
